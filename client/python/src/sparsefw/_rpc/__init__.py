"""How the clients speak to a server: messages, transports, transfers that go on after a fault."""
