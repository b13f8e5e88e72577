-- Types that people make. A copy makes tables, and asks for those first.
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'glücklich');
CREATE DOMAIN postcode AS text CHECK (VALUE ~ '^[0-9]+$');
CREATE TYPE pair AS (a integer, b text);
