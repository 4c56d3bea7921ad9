"""The application: configuration, wiring, the decode loop and the command line."""
