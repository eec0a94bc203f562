"""Pages of engines: the list with its bulk actions, one engine, its log, making and changing one."""

from django.urls import path

from engines.views.engines import act, detail, edit, listing, log

urlpatterns = [
    path("engines/", listing.EngineListView.as_view(), name="engine_list"),
    path("engines/operate", act.OperateEnginesView.as_view(), name="engine_operate"),
    path("engines/starts", listing.StartList.as_view(), name="start_list"),
    path("engines/add", edit.EngineAddView.as_view(), name="engine_add"),
    path("engines/<int:pk>/", detail.EngineDetailView.as_view(), name="engine_detail"),
    path("engines/<int:pk>/state", detail.EngineStateView.as_view(), name="engine_state"),
    path("engines/<int:pk>/operations", detail.EngineOperationsView.as_view(), name="engine_operations"),
    path("engines/<int:pk>/starts", detail.EngineStartsView.as_view(), name="engine_starts"),
    path("engines/<int:pk>/edit", edit.EngineChangeView.as_view(), name="engine_edit"),
    path("engines/<int:pk>/remove", edit.EngineRemoveView.as_view(), name="engine_remove"),
    path("engines/<int:pk>/<slug:verb>", act.EngineVerbView.as_view(), name="engine_verb"),
    path("engines/<int:pk>/log/", log.EngineLogView.as_view(), name="engine_log"),
    path("engines/<int:pk>/log/chunk", log.LogChunkView.as_view(), name="engine_log_chunk"),
    path("engines/<int:pk>/log/stream", log.LogStreamView.as_view(), name="engine_log_stream"),
    path("engines/<int:pk>/log/search", log.LogSearchView.as_view(), name="engine_log_search"),
    path("engines/<int:pk>/log/download", log.LogDownloadView.as_view(), name="engine_log_download"),
]
