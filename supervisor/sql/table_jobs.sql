-- The whole engine's state. A bigint id: an int4 serial runs out, and ON CONFLICT burns numbers.
-- A queue's name is what NOTIFY carries, which takes 8,000 bytes at most; the caps stay far below.
CREATE TABLE jobs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text NOT NULL CONSTRAINT jobs_queue_length CHECK (octet_length(queue) BETWEEN 1 AND 40),
  name text NOT NULL CONSTRAINT jobs_name_length CHECK (octet_length(name) BETWEEN 1 AND 200),
  args jsonb DEFAULT '{}' NOT NULL,
  status text DEFAULT 'pending' NOT NULL,
  callsite text,
  created_at timestamptz DEFAULT now() NOT NULL,
  started_at timestamptz,
  finished_at timestamptz
)
