from routes.views import businesses, keys, models, route_pages, teams, usage

app_name = "routes"

urlpatterns = [
    *teams.urlpatterns,
    *businesses.urlpatterns,
    *keys.urlpatterns,
    *route_pages.urlpatterns,
    *models.urlpatterns,
    *usage.urlpatterns,
]
