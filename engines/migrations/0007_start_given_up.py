from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("engines", "0006_gpu_samples")]

    operations = [
        migrations.AddField(
            model_name="enginestart",
            name="given_up_at",
            field=models.DateTimeField(null=True),
        ),
    ]
