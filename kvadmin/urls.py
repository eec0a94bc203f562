from django.urls import include, path

urlpatterns = [
    path("", include("kvadmin.views.urls")),
    path("account/", include("allauth.urls")),
    path("api/manage/v1/", include("kvadmin.api.urls")),
    path("", include("engines.urls")),
]

handler403 = "kvadmin.views.base.permission_denied"
