from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("engines", "0007_start_given_up")]

    operations = [
        migrations.AddField(
            model_name="enginestart",
            name="tries",
            field=models.PositiveSmallIntegerField(default=0, db_default=0),
        ),
        migrations.AddField(
            model_name="enginestart",
            name="tried_at",
            field=models.DateTimeField(null=True),
        ),
    ]
