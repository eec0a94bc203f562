"""Pages: hosts."""

from django.urls import URLPattern, path

from engines.views.hosts.adopt import AdoptView
from engines.views.hosts.buttons import ConfirmKey, Discover, Probe, Remove, TestConnection
from engines.views.hosts.edit import AddLocal, AddView, EditView
from engines.views.hosts.pages import DetailView, GpuMemory, ListView, StatusView
from engines.views.hosts.provision import ProvisionView, RegisterView
from engines.views.hosts.upgrade import UpgradeView

urlpatterns: list[URLPattern] = [
    path("hosts/", ListView.as_view(), name="host_list"),
    path("hosts/add/", AddView.as_view(), name="host_add"),
    path("hosts/add/this-machine/", AddLocal.as_view(), name="host_add_local"),
    path("hosts/<int:pk>/", DetailView.as_view(), name="host_detail"),
    path("hosts/<int:pk>/status/", StatusView.as_view(), name="host_status"),
    path("hosts/<int:pk>/gpu-memory.json", GpuMemory.as_view(), name="host_gpu_memory"),
    path("hosts/<int:pk>/edit/", EditView.as_view(), name="host_edit"),
    path("hosts/<int:pk>/test/", TestConnection.as_view(), name="host_test"),
    path("hosts/<int:pk>/confirm/", ConfirmKey.as_view(), name="host_confirm"),
    path("hosts/<int:pk>/probe/", Probe.as_view(), name="host_probe"),
    path("hosts/<int:pk>/discover/", Discover.as_view(), name="host_discover"),
    path("hosts/<int:pk>/remove/", Remove.as_view(), name="host_remove"),
    path("hosts/<int:pk>/provision/", ProvisionView.as_view(), name="host_provision"),
    path("hosts/<int:pk>/upgrade/", UpgradeView.as_view(), name="host_upgrade"),
    path("hosts/<int:pk>/register/", RegisterView.as_view(), name="host_register"),
    path("hosts/<int:pk>/adopt/<int:pid>/", AdoptView.as_view(), name="host_adopt"),
]
