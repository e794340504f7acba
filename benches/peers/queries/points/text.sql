-- p12: comments with a word [ordered]
SELECT count(*) FROM lineitem WHERE l_comment LIKE '%special%';

-- p13: comments with a beginning and two words [ordered]
SELECT count(*), min(l_comment), max(l_comment) FROM lineitem WHERE l_comment LIKE 'furiously%pending%deposits%';

-- p14: pages of one kind of host
SELECT site_id, count(*) FROM events WHERE page_url LIKE 'https://lamp%' GROUP BY site_id;
