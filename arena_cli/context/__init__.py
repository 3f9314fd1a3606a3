"""What an agent is shown: the window, its tokens, its hash, and how it reads as text."""
