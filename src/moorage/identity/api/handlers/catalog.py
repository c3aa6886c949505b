"""``/v3/regions``, ``/v3/services`` and ``/v3/endpoints``: what the catalogue of a token contains."""

from moorage.identity.accounts.account_rules import find
from moorage.identity.api.handlers.account_views import endpoint_document, listed, region_document, service_document
from moorage.identity.service import IdentityService
from moorage.wire.http import Request, Response


def list_regions(request: Request[IdentityService]) -> Response:
    rows = [region_document(region, request.base_url) for region in request.service.catalog.regions()]
    return listed(request, "regions", rows, "parent_region_id")


def show_region(request: Request[IdentityService], region_id: str) -> Response:
    regions = {region.id: region for region in request.service.catalog.regions()}
    return Response(body={"region": region_document(find(regions, region_id, "region"), request.base_url)})


def create_region(request: Request[IdentityService]) -> Response:
    region = request.service.catalog.create_region(request.json["region"])
    return Response(201, {"region": region_document(region, request.base_url)})


def update_region(request: Request[IdentityService], region_id: str) -> Response:
    region = request.service.catalog.update_region(region_id, request.json["region"])
    return Response(body={"region": region_document(region, request.base_url)})


def delete_region(request: Request[IdentityService], region_id: str) -> Response:
    request.service.catalog.delete_region(region_id)
    return Response(204)


def list_services(request: Request[IdentityService]) -> Response:
    rows = [service_document(service, request.base_url) for service in request.service.catalog.services()]
    return listed(request, "services", rows, "name", "type")


def show_service(request: Request[IdentityService], service_id: str) -> Response:
    services = {service.id: service for service in request.service.catalog.services()}
    return Response(body={"service": service_document(find(services, service_id, "service"), request.base_url)})


def create_service(request: Request[IdentityService]) -> Response:
    service = request.service.catalog.create_service(request.json["service"])
    return Response(201, {"service": service_document(service, request.base_url)})


def update_service(request: Request[IdentityService], service_id: str) -> Response:
    service = request.service.catalog.update_service(service_id, request.json["service"])
    return Response(body={"service": service_document(service, request.base_url)})


def delete_service(request: Request[IdentityService], service_id: str) -> Response:
    request.service.catalog.delete_service(service_id)
    return Response(204)


def list_endpoints(request: Request[IdentityService]) -> Response:
    endpoints = request.service.catalog.endpoints(request.base_url)
    rows = [endpoint_document(endpoint, request.base_url) for endpoint in endpoints]
    return listed(request, "endpoints", rows, "service_id", "interface", "region_id", "region")


def show_endpoint(request: Request[IdentityService], endpoint_id: str) -> Response:
    endpoints = {endpoint.id: endpoint for endpoint in request.service.catalog.endpoints(request.base_url)}
    return Response(body={"endpoint": endpoint_document(find(endpoints, endpoint_id, "endpoint"), request.base_url)})


def create_endpoint(request: Request[IdentityService]) -> Response:
    endpoint = request.service.catalog.create_endpoint(request.json["endpoint"])
    return Response(201, {"endpoint": endpoint_document(endpoint, request.base_url)})


def update_endpoint(request: Request[IdentityService], endpoint_id: str) -> Response:
    endpoint = request.service.catalog.update_endpoint(endpoint_id, request.json["endpoint"])
    return Response(body={"endpoint": endpoint_document(endpoint, request.base_url)})


def delete_endpoint(request: Request[IdentityService], endpoint_id: str) -> Response:
    request.service.catalog.delete_endpoint(endpoint_id)
    return Response(204)
