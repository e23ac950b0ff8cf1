"""Findings on paper: drawings, issue texts, JUnit, SARIF, patches and an offline page."""
