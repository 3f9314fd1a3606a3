"""The members of a team and its rules: profiles, teams, mentions, relevance."""
