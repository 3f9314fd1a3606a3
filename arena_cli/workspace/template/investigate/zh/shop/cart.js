const { DISCOUNT, finalPrice } = require("./price");

// What a customer pays for all articles.
function total(prices, isMember) {
  const sum = prices.reduce((all, price) => all + finalPrice(price, isMember), 0);
  return isMember ? sum * (1 - DISCOUNT) : sum;
}

module.exports = { total };
