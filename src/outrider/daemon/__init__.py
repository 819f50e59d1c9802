"""The machine agent: runs beside the coding agents and carries out the service's commands."""
