"""Forms of the host pages. They carry the input; the actions judge it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from engines.choices import HostAuth, HostKind
from engines.models import Host
from engines.provision.versions import KNOWN_VERSIONS
from kvadmin.crypto import has_secret, is_readable

_LARGEST_KEY_FILE = 64 * 1024


class SecretTextarea(forms.Textarea):
    """Never shows a value again, not even the one just sent."""

    def format_value(self, value: Any) -> str:
        return ""


class LinesField(forms.CharField):
    """One value a line; a list in ``cleaned_data``."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def clean(self, value: Any) -> list[str]:
        return [line for line in (super().clean(value) or "").splitlines() if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


def _text(**attrs: Any) -> forms.TextInput:
    return forms.TextInput(
        attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "off", **attrs}
    )


class PlacesForm(forms.Form):
    """Folders and package sources: the settings every kind of host has."""

    work_dir = forms.CharField(
        label=gettext_lazy("Folder on the host"),
        initial="~/.kvadmin",
        widget=_text(),
        help_text=gettext_lazy(
            "Environments, logs and job files go there; a vLLM version takes about 10 GB."
        ),
    )
    model_dirs = LinesField(
        label=gettext_lazy("Model folders"),
        required=False,
        help_text=gettext_lazy(
            "One a line. Models in them are listed by the probe, beside the Hugging Face cache."
        ),
    )
    index_url = forms.CharField(
        label=gettext_lazy("Package index"),
        required=False,
        widget=_text(placeholder="https://packages.example.com/simple"),
        help_text=gettext_lazy("Empty: what pip on the host is set to."),
    )
    wheel_dir = forms.CharField(
        label=gettext_lazy("Wheel folder"),
        required=False,
        widget=_text(placeholder="/srv/wheels"),
        help_text=gettext_lazy("A folder on the host with wheels, to install without any network."),
    )
    proxy = forms.CharField(
        label=gettext_lazy("Proxy"),
        required=False,
        widget=_text(placeholder="http://proxy.example.com:3128"),
        help_text=gettext_lazy("Used by pip on the host. Without user and password."),
    )


class SshForm(PlacesForm):
    """A host over SSH. ``sign_in`` is key, generate, password or both; on a change also keep."""

    KEEP, KEY, GENERATE, PASSWORD, BOTH = "keep", "key", "generate", "password", "both"

    name = forms.CharField(label=gettext_lazy("Name"), max_length=100, widget=_text(placeholder="h200-a"))
    address = forms.CharField(
        label=gettext_lazy("Address"),
        widget=_text(placeholder="10.0.3.14", inputmode="url"),
        help_text=gettext_lazy("Host name or IP address, as seen from this machine or from the jump host."),
    )
    port = forms.IntegerField(label=gettext_lazy("SSH port"), initial=22, min_value=1, max_value=65535)
    username = forms.CharField(
        label=gettext_lazy("User"),
        widget=_text(placeholder="ops"),
        help_text=gettext_lazy("An ordinary user will do; engines run as this user."),
    )
    jump = forms.ModelChoiceField(
        label=gettext_lazy("Through a jump host"),
        queryset=Host.objects.none(),
        required=False,
        empty_label=gettext_lazy("No, connect directly"),
        help_text=gettext_lazy("Add the jump host itself first; then choose it here."),
    )
    service_address = forms.CharField(
        label=gettext_lazy("Service address"),
        required=False,
        widget=_text(),
        help_text=gettext_lazy(
            "Where console and gateway reach the engines' ports. Empty: the address above. "
            "Behind a jump host it has to be given."
        ),
    )
    sign_in = forms.ChoiceField(
        label=gettext_lazy("Sign in by"),
        widget=forms.RadioSelect,
        initial=KEY,
        choices=[
            (KEY, gettext_lazy("A private key that I paste or upload")),
            (GENERATE, gettext_lazy("A new key made here; I put its public line on the host")),
            (PASSWORD, gettext_lazy("A password")),
            (BOTH, gettext_lazy("A private key and a password: the host asks for one after the other")),
        ],
    )
    private_key = forms.CharField(
        label=gettext_lazy("Private key"),
        required=False,
        strip=False,
        widget=SecretTextarea(
            attrs={
                "rows": 6,
                "autocomplete": "off",
                "spellcheck": "false",
                "placeholder": "-----BEGIN OPENSSH PRIVATE KEY-----",
            }
        ),
        help_text=gettext_lazy("Kept encrypted and never shown again."),
    )
    key_file = forms.FileField(label=gettext_lazy("Or upload its file"), required=False)
    passphrase = forms.CharField(
        label=gettext_lazy("Passphrase of the key"),
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("Kept encrypted and never shown again. A key is the safer choice."),
    )

    def __init__(self, *args: Any, host: Host | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        jumps = Host.objects.filter(kind=HostKind.SSH)
        for name in ("private_key", "key_file", "password"):
            # shown only with the way of signing in that needs it
            self.fields[name].needed_where_shown = True
        self.fields["jump"].queryset = jumps.exclude(pk=host.pk) if host is not None else jumps
        if host is not None:
            kept = (
                _("Keep the present key and password")
                if host.auth == HostAuth.BOTH
                else _("Keep the present password")
                if has_secret(host, "password")
                else _("Keep the present key")
            )
            self.fields["sign_in"].choices = [(self.KEEP, kept), *self.fields["sign_in"].choices]
            self.fields["sign_in"].initial = self.KEEP
            if not is_readable(host, "private_key", "passphrase", "password"):
                self.fields["sign_in"].help_text = _("The stored secret cannot be read: enter it again.")

    def clean_key_file(self) -> str:
        file = self.cleaned_data.get("key_file")
        if not file:
            return ""
        if file.size > _LARGEST_KEY_FILE:
            raise forms.ValidationError(_("This file is too large for a private key."))
        try:
            return file.read().decode()
        except UnicodeDecodeError as error:
            raise forms.ValidationError(_("This file is not a private key in text form.")) from error

    def action_input(self) -> dict[str, Any]:
        """The cleaned form as the fields of AddHost and ChangeHost."""
        data = self.cleaned_data
        way = data["sign_in"]
        values = {
            name: data[name]
            for name in (
                "name", "address", "port", "username", "jump", "service_address", "work_dir",
                "model_dirs", "index_url", "wheel_dir", "proxy",
            )
        }  # fmt: skip
        if way == self.KEEP:
            return values
        ways = {self.PASSWORD: HostAuth.PASSWORD, self.BOTH: HostAuth.BOTH}
        auth = values["auth"] = ways.get(way, HostAuth.KEY)
        if auth.by_password:
            values["password"] = data["password"]
        if way == self.GENERATE:
            values["generate_key"] = True
        elif auth.by_key:
            values["private_key"] = data["key_file"] or data["private_key"]
            values["passphrase"] = data["passphrase"]
        return values


class LocalForm(PlacesForm):
    """Settings of this machine as a host."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=100, widget=_text())
    service_address = forms.CharField(
        label=gettext_lazy("Service address"),
        required=False,
        widget=_text(),
        help_text=gettext_lazy("Where gateway and console reach the engines' ports. Empty: 127.0.0.1."),
    )

    def action_input(self) -> dict[str, Any]:
        return dict(self.cleaned_data)


class ProvisionForm(forms.Form):
    """What to install. The version is one of the list or any other."""

    version = forms.CharField(
        label=gettext_lazy("vLLM version"),
        widget=_text(list="versions", inputmode="decimal"),
        help_text=gettext_lazy("Choose from the list or type any released version."),
    )
    variant = forms.ChoiceField(
        label=gettext_lazy("Build"),
        widget=forms.RadioSelect,
        choices=[
            ("cuda", gettext_lazy("CUDA, for NVIDIA GPUs; needs about 12 GB of disk")),
            ("cpu", gettext_lazy("CPU, to try things out without a GPU; about 4 GB")),
        ],
    )
    source = forms.ChoiceField(label=gettext_lazy("Packages from"), widget=forms.RadioSelect)
    python = forms.CharField(
        label=gettext_lazy("Python"),
        required=False,
        widget=_text(list="pythons", placeholder="3.12"),
        help_text=gettext_lazy("Empty: the first on the host that fits. Or a version, or a path."),
    )
    despite_driver = forms.BooleanField(
        label=gettext_lazy("Install even if the GPU driver is too old"),
        required=False,
        help_text=gettext_lazy("Only if the driver is about to be updated: engines will not start before."),
    )
    versions = KNOWN_VERSIONS

    def __init__(self, *args: Any, host: Host, **kwargs: Any):
        super().__init__(*args, **kwargs)
        index = (
            _("The host's package index, %(url)s") % {"url": host.index_url}
            if host.index_url
            else _("The package index that pip on the host is set to")
        )
        wheels = (
            _("The host's wheel folder, %(path)s; no network") % {"path": host.wheel_dir}
            if host.wheel_dir
            else _("A wheel folder on the host (set one in the host's settings first)")
        )
        self.fields["source"].choices = [("index", index), ("wheels", wheels)]


class ExistingForm(forms.Form):
    existing = forms.CharField(
        label=gettext_lazy("Folder of the environment"),
        widget=_text(placeholder="/opt/vllm"),
        help_text=gettext_lazy("The folder that holds bin/python and bin/vllm. Nothing in it is changed."),
    )


class AdoptForm(forms.Form):
    name = forms.CharField(label=gettext_lazy("Name of the engine"), max_length=100, widget=_text())
    api_key = forms.CharField(
        label=gettext_lazy("API key of the server"),
        required=False,
        strip=True,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("Only if it was started with one that cannot be read from its process."),
    )
