"""Dashboards for Grafana, rules for Prometheus, and a compose file that starts all of it."""
