"""The workspace's files: agents, teams, mentions."""
