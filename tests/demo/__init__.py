"""Tests of the demo agent, on the path of every ACP agent."""
