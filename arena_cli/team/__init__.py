"""Who is in a team and by which rules it talks: profiles, teams, workspaces, mentions, relevance."""
