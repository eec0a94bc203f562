from django.db import migrations


class Migration(migrations.Migration):
    # One sequence over all engines: a page asks for everything that changed since a number.
    dependencies = [("engines", "0002_initial")]

    operations = [
        migrations.RunSQL("CREATE SEQUENCE engines_change_seq", "DROP SEQUENCE engines_change_seq"),
    ]
