"""The pages, one module for each part of the dashboard. `tampu.dashboard.app` lists them."""
