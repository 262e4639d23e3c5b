"""A Vulkan instance, with validation if wanted, and the devices it offers.

``open_instance(validation=False) -> Instance``; ``Instance.devices`` pairs each
``DeviceInfo`` with its handle; ``Instance.messages`` collects what validation says.
``list_devices() -> tuple[DeviceInfo, ...]``.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack

from . import info
from .api import Handle, Vulkan, load
from .errors import NoDriver, NoLoader, NoValidationLayer, VulkanError
from .info import DeviceInfo

_LAYER = "VK_LAYER_KHRONOS_validation"
_OLDEST = (1, 1)
_NO_DRIVER = (
    "no Vulkan driver: install one for the GPU, or mesa-vulkan-drivers for the software device; "
    "VK_DRIVER_FILES, if set, must name a driver's JSON file"
)


class Instance:
    """An open instance; ``close`` may be called twice."""

    def __init__(self, api: Vulkan, validation: bool) -> None:
        self.api = api
        self.messages: list[str] = []
        self.layer_version = (0, 0, 0)  # of the validation layer, if it is on
        self._kept: tuple[Handle, ...] = ()  # what vkCreateInstance reads
        self._callback: Handle = None  # the messenger calls it as long as the instance lives
        with ExitStack() as stack:
            self.handle = self._create(stack, validation)
            self.devices = self._find_devices()
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def _create(self, stack: ExitStack, validation: bool) -> Handle:
        api = self.api
        application = api.VkApplicationInfo(
            pApplicationName="shaderloom", apiVersion=api.VK_MAKE_VERSION(1, 3, 0)
        )
        layers: list[str] = []
        extensions: list[str] = []
        chain: Handle = None
        messenger: Handle = None
        if validation:
            layers, extensions = self._validation_names()
            messenger = chain = self._messenger_info()
            if "VK_EXT_validation_features" in extensions:
                extra = [api.VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT]
                chain = api.VkValidationFeaturesEXT(
                    pNext=messenger,
                    enabledValidationFeatureCount=1,
                    pEnabledValidationFeatures=extra,
                )
            if "VK_EXT_layer_settings" in extensions:
                chain = self._layer_settings(chain)
        create = api.VkInstanceCreateInfo(
            pNext=chain,
            pApplicationInfo=application,
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=layers,
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=extensions,
        )
        try:
            handle = api.vkCreateInstance(create, None)
        except VulkanError as error:
            if error.result == "VK_ERROR_INCOMPATIBLE_DRIVER":
                raise NoDriver(_NO_DRIVER) from error
            raise
        stack.callback(api.vkDestroyInstance, handle, None)
        if validation:
            created = api.instance_function(handle, "vkCreateDebugUtilsMessengerEXT")(
                handle, messenger, None
            )
            destroy = api.instance_function(handle, "vkDestroyDebugUtilsMessengerEXT")
            stack.callback(destroy, handle, created, None)
        return handle

    def _validation_names(self) -> tuple[list[str], list[str]]:
        api = self.api
        found = api.vkEnumerateInstanceLayerProperties()
        versions = {layer.layerName: info.version_of(layer.specVersion) for layer in found}
        if _LAYER not in versions:
            raise NoValidationLayer(
                f"{_LAYER} is not installed: install vulkan-validationlayers (Debian) or the SDK"
            )
        self.layer_version = versions[_LAYER]
        offered = api.vkEnumerateInstanceExtensionProperties(_LAYER)
        names = {extension.extensionName for extension in offered}
        wanted = ("VK_EXT_validation_features", "VK_EXT_layer_settings")
        optional = [name for name in wanted if name in names]
        return [_LAYER], ["VK_EXT_debug_utils", *optional]

    def _layer_settings(self, chain: Handle) -> Handle:
        """Have hazards of what shaders access told: layers after 1.3.239 must be asked to."""
        ffi = self.api.ffi
        layer = ffi.new("char[]", _LAYER.encode())
        name = ffi.new("char[]", b"syncval_shader_accesses_heuristic")
        yes = ffi.new("VkBool32 *", 1)
        setting = ffi.new(
            "VkLayerSettingEXT *", (layer, name, self.api.VK_LAYER_SETTING_TYPE_BOOL32_EXT, 1, yes)
        )
        create = self.api.VkLayerSettingsCreateInfoEXT(pNext=chain, settingCount=1)
        # By hand, and kept: the binding would copy the pointers of what is freed by then.
        create.pSettings = setting
        self._kept = (layer, name, yes, setting)
        return create

    def _messenger_info(self) -> Handle:
        api = self.api
        create = api.VkDebugUtilsMessengerCreateInfoEXT(
            messageSeverity=api.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT
            | api.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
            # Not GENERAL: there the loader reports drivers of absent GPUs that it skipped.
            # Not PERFORMANCE: it advises against copying in the general layout, a choice here.
            messageType=api.VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        )

        def collect(_severity: int, _types: int, data: Handle, _user: Handle) -> int:
            self.messages.append(api.ffi.string(data.pMessage).decode(errors="replace"))
            return 0

        # Set by hand: given to the constructor, the binding would keep one callback for the
        # whole process, and every instance's messages would go to the last one.
        self._callback = api.ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", collect)
        create.pfnUserCallback = self._callback
        return create

    def _find_devices(self) -> tuple[tuple[DeviceInfo, Handle], ...]:
        api = self.api
        try:
            physical = api.vkEnumeratePhysicalDevices(self.handle)
        except VulkanError as error:
            if error.result == "VK_ERROR_INITIALIZATION_FAILED":  # a driver without its GPU
                raise NoDriver(_NO_DRIVER) from error
            raise
        handles = [p for p in physical if info.api_version(api, p)[:2] >= _OLDEST]
        if not handles:
            raise NoDriver(_NO_DRIVER)
        return tuple((info.describe(api, self.handle, p, i), p) for i, p in enumerate(handles))


def open_instance(validation: bool = False) -> Instance:
    """Open an instance.

    Raises:
        NoLoader: no loader, or one older than Vulkan 1.1.
        NoDriver: no driver, or none that offers a device of Vulkan 1.1 or later.
        NoValidationLayer: ``validation`` without the layer.
    """
    api = load()
    # Loaders of Vulkan 1.0 have no such function; the binding then raises AttributeError.
    try:
        api.vkEnumerateInstanceVersion()
    except AttributeError as error:
        raise NoLoader("the Vulkan loader is older than Vulkan 1.1: update it") from error
    instance = Instance(api, validation)
    _keep_drivers_loaded()
    return instance


@functools.cache
def _keep_drivers_loaded() -> Instance:
    """Open one bare instance that lives as long as the process.

    The loader unloads the drivers with the last instance, and NVIDIA's takes a piece of the
    process's static TLS each time that it is loaded: with driver 580 the thirtieth device
    found "cannot allocate memory in static TLS block", and so no driver.
    """
    return Instance(load(), validation=False)


def list_devices() -> tuple[DeviceInfo, ...]:
    """Describe all devices of Vulkan 1.1 or later; raises as ``open_instance``."""
    instance = open_instance()
    try:
        return tuple(info for info, _ in instance.devices)
    finally:
        instance.close()
