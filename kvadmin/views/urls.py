from kvadmin.views import account, preferences, search, tokens

app_name = "kvadmin"

urlpatterns = [
    *account.urlpatterns,
    *preferences.urlpatterns,
    *search.urlpatterns,
    *tokens.urlpatterns,
]
