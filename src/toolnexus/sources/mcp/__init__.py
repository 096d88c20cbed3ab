"""Tools of MCP servers."""
