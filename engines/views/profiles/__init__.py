"""Pages: profiles."""

from django.urls import path, re_path

from engines.views.profiles import flags, form, pages

urlpatterns = [
    path("profiles/", pages.ProfileList.as_view(), name="profile_list"),
    path("profiles/add/", form.ProfileForm.as_view(), name="profile_add"),
    path("profiles/import/", form.ProfileImport.as_view(), name="profile_import"),
    path("profiles/flags/", flags.FlagList.as_view(), name="flag_list"),
    path("profiles/preview/", form.ProfilePreview.as_view(), name="profile_preview"),
    path("profiles/<int:pk>/", pages.ProfileDetail.as_view(), name="profile_detail"),
    path("profiles/<int:pk>/edit/", form.ProfileForm.as_view(), name="profile_edit"),
    path("profiles/<int:pk>/compare/", pages.ProfileCompare.as_view(), name="profile_compare"),
    path("profiles/<int:pk>/archive/", pages.ProfileArchive.as_view(), name="profile_archive"),
    path("profiles/<int:pk>/restore/", pages.ProfileRestore.as_view(), name="profile_restore"),
    path("profiles/<int:pk>/revisions/<int:number>/", pages.ProfileDetail.as_view(), name="profile_revision"),
    re_path(
        r"^profiles/(?P<pk>\d{1,18})/revisions/(?P<number>\d{1,9})/export\.(?P<form>json|sh)$",
        pages.ProfileExport.as_view(),
        name="profile_export",
    ),
]
