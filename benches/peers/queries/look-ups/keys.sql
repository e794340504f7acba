-- k01: one event, all columns
SELECT * FROM events WHERE event_id = 5121215481947193116;

-- k02: two columns of a few events
SELECT event_id, page_url FROM events WHERE event_id IN (6892870844423433054, 5121215481947193116, 42);

-- k03: an event that is not there
SELECT * FROM events WHERE event_id = 4611686018427387904;

-- k04: the events of a session, in their order [ordered]
SELECT hit_number, event_time, page_title, action FROM events WHERE session_id = 83575399229301077 ORDER BY hit_number;

-- k05: the days of a visitor
SELECT event_date, count(*), min(event_time), max(load_ms) FROM events WHERE visitor_id = 2154971449976142551 GROUP BY event_date;

-- k06: who saw a page
SELECT visitor_id, event_time, country FROM events
WHERE page_url = 'https://museum8.news.test/flights/recipe-stone-jacket?lamp=245b&chair=46cf';

-- k07: whether anybody saw a page
SELECT count(*) FROM events WHERE page_url = 'https://museum8.news.test/flights/recipe-stone-jacket?lamp=245c';

-- k08: events of a list of keys that another table has
SELECT k.n, e.page_url, e.load_ms FROM events e JOIN (VALUES (7684023038227123840, 1), (8057835008157046176, 2),
    (1207259941902775025, 3), (910986207852925085, 4), (5, 5)) AS k(id, n) ON e.event_id = k.id;
