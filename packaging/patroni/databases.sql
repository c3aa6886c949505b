-- Once, on the primary: psql -h 10.0.0.21 -U postgres -f databases.sql
CREATE ROLE moorage LOGIN PASSWORD 'PASSWORD';
CREATE DATABASE identity OWNER moorage;
CREATE DATABASE placement OWNER moorage;
CREATE DATABASE compute OWNER moorage;
CREATE DATABASE accelerator OWNER moorage;
CREATE DATABASE reservation OWNER moorage;
CREATE DATABASE network OWNER moorage;
