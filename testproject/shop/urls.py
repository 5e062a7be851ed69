from django.urls import path

from testproject.shop import views

urlpatterns = [
    path("stock/<slug:sku>/", views.stock),
    path("buy/<slug:sku>/", views.buy),
    path("unlocked/buy/<slug:sku>/", views.buy_unlocked),
    path("orders/<int:order_id>/confirm/", views.request_confirmation),
]
