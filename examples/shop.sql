-- A small shop, for docs/sync.md: sqlite3 shop.db < examples/shop.sql
CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name VARCHAR(80) NOT NULL,
    since DATE NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer INTEGER NOT NULL REFERENCES customers (id),
    placed DATETIME NOT NULL,
    note TEXT
);
CREATE INDEX orders_by_customer ON orders (customer);
CREATE TABLE lines (
    "order" INTEGER NOT NULL,
    position INTEGER NOT NULL,
    article VARCHAR(40) NOT NULL,
    quantity SMALLINT NOT NULL,
    price DOUBLE NOT NULL,
    PRIMARY KEY ("order", position)
);
CREATE TABLE visits (at DATETIME NOT NULL, page TEXT NOT NULL);

WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
INSERT INTO customers SELECT i, 'Customer ' || i, date('2020-01-01', '+' || i || ' days') FROM n;
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
INSERT INTO orders
SELECT i, 1 + i % 400, datetime('2024-01-01', '+' || i || ' hours'), CASE WHEN i % 3 = 0 THEN 'Please ring twice 🔔' END FROM n;
INSERT INTO lines SELECT id, p.i, 'article ' || (id % 50), 1 + id % 4, (id % 900) + 0.5
FROM orders, (SELECT 1 AS i UNION SELECT 2 UNION SELECT 3) AS p;
INSERT INTO visits SELECT placed, '/order/' || id FROM orders LIMIT 500;
