const DISCOUNT = 0.1;

// What a customer pays for one article; members get the discount.
function finalPrice(price, isMember) {
  return isMember ? price * (1 - DISCOUNT) : price;
}

module.exports = { DISCOUNT, finalPrice };
