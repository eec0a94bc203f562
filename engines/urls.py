from engines.views import charts, engines, fleet, hosts, operations, profiles

app_name = "engines"

urlpatterns = [
    *fleet.urlpatterns,
    *engines.urlpatterns,
    *hosts.urlpatterns,
    *profiles.urlpatterns,
    *operations.urlpatterns,
    *charts.urlpatterns,
]
