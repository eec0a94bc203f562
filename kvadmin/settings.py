"""Django's settings, derived from kvadmin.env. Safe by default; nothing here reads os.environ."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from csp.constants import NONE, SELF
from django.utils.translation import gettext_lazy as _

from kvadmin.env import BASE_DIR, environment
from kvadmin.forwarded import SCHEME_KEY
from kvadmin.logs import logging_settings
from kvadmin.sealing import data_keys
from kvadmin.services import database_settings, valkey_cache_url, valkey_url

ENV = environment()
HOME: Path = ENV.home
#: set by kvadmin.asgi: the console shares its connections, other processes keep one for each thread
IN_CONSOLE = "kvadmin.asgi" in sys.modules
CONSOLE_CONNECTIONS = 20

DEBUG = ENV.debug
SECRET_KEY = ENV.secret_key
KVADMIN_DATA_KEYS = data_keys(ENV.data_keys)
KVADMIN_PEPPER = ENV.pepper
KVADMIN_TRUSTED_PROXIES = [str(network) for network in ENV.proxies]
KVADMIN_EXPOSED = ENV.exposed
KVADMIN_GATEWAY_URL = ENV.gateway_address
KVADMIN_GATEWAY_PORT = ENV.gateway_port
KVADMIN_POLL_SECONDS = ENV.poll_seconds
KVADMIN_POLL_SECONDS_MANY = ENV.poll_seconds_many
KVADMIN_KEEP_RAW_H = ENV.keep_raw_h
KVADMIN_KEEP_MINUTES_D = ENV.keep_minutes_d
KVADMIN_KEEP_HOURS_D = ENV.keep_hours_d
KVADMIN_KEEP_USAGE_D = ENV.keep_usage_d
KVADMIN_KEEP_USAGE_GB = ENV.keep_usage_gb
KVADMIN_KEEP_AUDIT_D = ENV.keep_audit_d
KVADMIN_KEEP_OPERATIONS_D = ENV.keep_operations_d
KVADMIN_KEEP_STARTS = ENV.keep_starts

ALLOWED_HOSTS = [
    *(name.strip() for name in ENV.allowed_hosts.split(",") if name.strip()),
    "localhost",
    "127.0.0.1",
    "[::1]",
    *([ENV.bind] if ENV.bind not in {"0.0.0.0", "::", "127.0.0.1"} else []),  # noqa: S104
]
_scheme = "https" if ENV.tls else "http"
CSRF_TRUSTED_ORIGINS = [
    f"{scheme}://{name}{port}"
    for name in ALLOWED_HOSTS
    if "*" not in name
    for scheme in {_scheme, "https"}
    for port in ("", f":{ENV.port}")
]

INSTALLED_APPS = [
    "kvadmin",
    "engines",
    "routes",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.forms",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "django_htmx",
    "django_cotton",
    "django_filters",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
]

MIDDLEWARE = [
    "kvadmin.health.Health",
    "kvadmin.middleware.Forwarded",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "kvadmin.accounts.middleware.AccountLanguageMiddleware",
    "kvadmin.accounts.middleware.NewPasswordMiddleware",
]

ROOT_URLCONF = "kvadmin.urls"
ASGI_APPLICATION = "kvadmin.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "kvadmin.context.may",
                "kvadmin.context.frame",
            ],
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "django_cotton.cotton_loader.Loader",
                        "django.template.loaders.filesystem.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "builtins": ["django_cotton.templatetags.cotton"],
        },
    }
]
COTTON_DIR = "components"
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"

DATABASES = {"default": database_settings(ENV, pool=CONSOLE_CONNECTIONS if IN_CONSOLE else 0)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "kvadmin.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
CSRF_FAILURE_VIEW = "kvadmin.views.base.csrf_failure"
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"

CACHES = {
    "default": {
        "BACKEND": "kvadmin.cache.LossyCache",
        "LOCATION": valkey_cache_url(ENV),
        "KEY_PREFIX": "kvadmin",
        "OPTIONS": {"socket_connect_timeout": 1, "socket_timeout": 1},
    }
}

ACCOUNT_ADAPTER = "kvadmin.accounts.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_REAUTHENTICATION_METHODS = ["password", "mfa"]
ACCOUNT_RATE_LIMITS = {"login_failed": "30/m/ip,10/15m/key"}
ACCOUNT_FORMS = {
    "login": "kvadmin.accounts.forms.LoginForm",
    "change_password": "kvadmin.accounts.forms.ChangePasswordForm",
    "reauthenticate": "kvadmin.accounts.forms.ReauthenticateForm",
}
MFA_ADAPTER = "kvadmin.accounts.adapters.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "kvadmin"
MFA_TOTP_TOLERANCE = 1
MFA_FORMS = {
    "authenticate": "kvadmin.accounts.forms.AuthenticateForm",
    "reauthenticate": "kvadmin.accounts.forms.CodeReauthenticateForm",
    "activate_totp": "kvadmin.accounts.forms.TotpForm",
    "add_webauthn": "kvadmin.accounts.forms.AddPasskeyForm",
    "edit_webauthn": "kvadmin.accounts.forms.RenamePasskeyForm",
}
SOCIALACCOUNT_ADAPTER = "kvadmin.accounts.adapters.SocialAdapter"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_REQUESTS_TIMEOUT = 10
KVADMIN_OIDC_CREATE_USERS = ENV.oidc_create_users
KVADMIN_OIDC_ROLE = ENV.oidc_role
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {}
if ENV.oidc:
    SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {
            "OAUTH_PKCE_ENABLED": True,
            "APPS": [
                {
                    "provider_id": "oidc",
                    "name": ENV.oidc_name,
                    "client_id": ENV.oidc_client_id,
                    "secret": ENV.oidc_client_secret,
                    "settings": {"server_url": ENV.oidc_server_url},
                }
            ],
        }
    }
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
# the first is where catalogues are compiled to if the checkout cannot be written
LOCALE_PATHS = [HOME / "locale", BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = HOME / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "kvadmin.collect.Storage"},
}
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "kvadmin.staticfiles.PackageFileFinder",
]

# A request that came over TLS, here or at a trusted proxy, gets secure cookies from
# kvadmin.middleware.Forwarded; a proxy's plain neighbour on loopback can still sign in.
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = ENV.tls
SESSION_COOKIE_AGE = 7 * 24 * 3600
CSRF_COOKIE_SECURE = ENV.tls
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if ENV.tls or ENV.proxies else 0
SECURE_PROXY_SSL_HEADER = (SCHEME_KEY, "https")
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 << 20
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        # the hash of the empty string: Plotly adds an empty <style> and fills it by CSSOM
        # and the fixed style sheet of the map library in Plotly's bundle, which it adds unused
        "style-src": [
            SELF,
            "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
            "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='",
        ],
        "connect-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "manifest-src": [SELF],
    }
}

CELERY_BROKER_URL = valkey_url(ENV)
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_DEFAULT_QUEUE = "ops"
CELERY_TASK_ROUTES = {
    "engines.tasks.poll.*": {"queue": "poll"},
    "engines.tasks.rollup.*": {"queue": "rollup"},
    "routes.tasks.rollup.*": {"queue": "rollup"},
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 600}
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    "reconcile-operations": {
        "task": "engines.tasks.operations.resume_operations",
        "schedule": 5.0,
        "options": {"expires": 10},
    },
    "keep-polling": {
        "task": "engines.tasks.poll.keep_polling",
        "schedule": 5.0,
        "options": {"expires": 10},
    },
    "reconcile-engines": {
        "task": "engines.tasks.reconcile.reconcile_engines",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "roll-up-samples": {
        "task": "engines.tasks.rollup.roll_up_samples",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
    "keep-partitions": {
        "task": "engines.tasks.rollup.keep_partitions",
        "schedule": 1800.0,
        "options": {"expires": 1800},
    },
    "roll-up-usage": {
        "task": "routes.tasks.rollup.roll_up_usage",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
    "keep-usage-partitions": {
        "task": "routes.tasks.rollup.keep_usage_partitions",
        "schedule": 1800.0,
        "options": {"expires": 1800},
    },
    "sample-hosts": {
        "task": "engines.tasks.hosts.sample_hosts",
        "schedule": 60.0,
        "options": {"expires": 55},
    },
    "probe-hosts": {
        "task": "engines.tasks.hosts.probe_hosts",
        "schedule": 6 * 3600.0,
        "options": {"expires": 3600},
    },
    "trim-gpu-samples": {
        "task": "engines.tasks.hosts.trim_gpu_samples",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "trim-idempotency-records": {
        "task": "kvadmin.tasks.trim_idempotency_records",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "trim-audit-events": {
        "task": "kvadmin.tasks.trim_audit_events",
        "schedule": 24 * 3600.0,
        "options": {"expires": 3600},
    },
    "trim-operations": {
        "task": "engines.tasks.operations.trim_operations",
        "schedule": 24 * 3600.0,
        "options": {"expires": 3600},
    },
    "clear-expired-sessions": {
        "task": "kvadmin.tasks.clear_expired_sessions",
        "schedule": 24 * 3600.0,
        "options": {"expires": 3600},
    },
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "kvadmin.api.authentication.TokenAuthentication",
        "kvadmin.api.authentication.BrowserSession",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["kvadmin.api.permissions.MayDo"],
    "DEFAULT_THROTTLE_CLASSES": ["kvadmin.api.throttling.TokenThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["kvadmin.api.parsers.StrictJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "kvadmin.api.pagination.KeysetPagination",
    "DEFAULT_FILTER_BACKENDS": ["kvadmin.api.filters.ListFilter"],
    "DEFAULT_SCHEMA_CLASS": "kvadmin.api.schema.ManageSchema",
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "kvadmin.api.problems.exception_handler",
    "URL_FORMAT_OVERRIDE": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
#: calls of one management token, or of one person's browser
KVADMIN_API_RATES = {"read": "1200/min", "write": "300/min"}

SPECTACULAR_SETTINGS = {
    "TITLE": "kvadmin management API",
    "DESCRIPTION": "Everything the console does, for scripts. Errors are problem details (RFC 9457).",
    "VERSION": "v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": r"/api/manage/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "TokenScopeEnum": "kvadmin.models.token.TokenScope",
        "RoleEnum": "kvadmin.policies.Role",
        "HostAuthEnum": "engines.choices.HostAuth",
        "HostKindEnum": "engines.choices.HostKind",
        "HostStateEnum": "engines.choices.HostState",
        "EngineStateEnum": "engines.choices.EngineState",
        "DesiredStateEnum": "engines.choices.DesiredState",
        "LauncherEnum": "engines.choices.Launcher",
        "OperationKindEnum": "engines.choices.OperationKind",
        "OperationStateEnum": "engines.choices.OperationState",
        "StepStateEnum": "engines.choices.StepState",
        "EnvironmentSourceEnum": "engines.models.host.VllmEnvironmentSource",
        "TeamRoleEnum": "kvadmin.policies.TeamRole",
        "KeyStateEnum": "routes.choices.KeyState",
        "RouteStateEnum": "routes.choices.RouteState",
        "PolicyEnum": "routes.choices.Policy",
        "MaxTokensRuleEnum": "routes.choices.MaxTokensRule",
    },
}

LOGGING_CONFIG = "kvadmin.logs.configure"
LOGGING = logging_settings(ENV)
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
