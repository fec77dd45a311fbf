"""Integrations: one module or package per framework, imported only where that framework is installed."""
