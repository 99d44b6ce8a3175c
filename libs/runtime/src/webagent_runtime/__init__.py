"""What every WebAgent-R1 service shares: server, clients, queue, payloads, configuration, telemetry."""
