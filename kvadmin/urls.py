from django.urls import include, path

urlpatterns = [
    path("account/", include("allauth.urls")),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("engines.urls")),
]
