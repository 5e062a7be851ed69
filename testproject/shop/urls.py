from django.urls import path

from testproject.shop import views

STRIPES = 1, 4, 16

urlpatterns = [
    path("stock/<slug:sku>/", views.stock),
    path("buy/<slug:sku>/", views.buy),
    path("unlocked/buy/<slug:sku>/", views.buy_unlocked),
    *(path(f"striped/{stripes}/buy/<slug:sku>/", views.buy_from(stripes)) for stripes in STRIPES),
    path("orders/<int:order_id>/confirm/", views.request_confirmation),
]
