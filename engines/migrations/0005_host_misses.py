from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("engines", "0004_metric_storage")]

    operations = [
        migrations.AddField(
            model_name="host",
            name="misses",
            field=models.PositiveIntegerField(default=0),
        ),
    ]
