-- One database per service; POSTGRES_DB of compose.yaml creates that of the identity service.
CREATE DATABASE moorage_placement;
CREATE DATABASE moorage_compute;
CREATE DATABASE moorage_accelerator;
CREATE DATABASE moorage_reservation;
CREATE DATABASE moorage_network;
