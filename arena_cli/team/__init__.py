"""Who is in a team and by which rules it talks: profiles, teams, mentions, relevance."""
