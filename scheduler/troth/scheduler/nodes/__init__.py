"""The nodes as a scheduler reaches them: channels, tunnels, and how long an answer may take."""
