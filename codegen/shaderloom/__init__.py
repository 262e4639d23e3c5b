"""shaderloom: plan, render, compile and prove the interfaces of Vulkan compute shaders."""

__version__ = "0.1.0"
