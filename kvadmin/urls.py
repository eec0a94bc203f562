from django.urls import include, path

urlpatterns = [
    path("", include("kvadmin.views.urls")),
    path("account/", include("kvadmin.accounts.urls")),
    path("api/manage/v1/", include("kvadmin.api.urls")),
    path("", include("engines.urls")),
    path("", include("routes.urls")),
]

handler403 = "kvadmin.views.base.permission_denied"
handler429 = "kvadmin.views.base.too_many_requests"
