"""What an overlay may add to the planned objects: gateway, network policies, metrics, alerts, dashboards."""
