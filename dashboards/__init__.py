"""Dashboards for Grafana, rules for Prometheus, and a compose file that brings all of it up."""
