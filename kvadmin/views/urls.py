from kvadmin.views import account, audit, oidc, preferences, search, system, tokens, users

app_name = "kvadmin"

urlpatterns = [
    *account.urlpatterns,
    *preferences.urlpatterns,
    *search.urlpatterns,
    *tokens.urlpatterns,
    *oidc.urlpatterns,
    *users.urlpatterns,
    *audit.urlpatterns,
    *system.urlpatterns,
]
