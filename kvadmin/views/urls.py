from kvadmin.views import account, preferences, search

app_name = "kvadmin"

urlpatterns = [
    *account.urlpatterns,
    *preferences.urlpatterns,
    *search.urlpatterns,
]
