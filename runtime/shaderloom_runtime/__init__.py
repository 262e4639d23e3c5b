"""A small Vulkan runtime for the shaders that shaderloom generates."""
