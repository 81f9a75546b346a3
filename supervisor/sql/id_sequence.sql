-- The sequence that jobs.id is drawn from, quoted where need be: the column's own, else the one in its default.
SELECT coalesce(
  pg_get_serial_sequence('jobs', 'id'),
  (
    SELECT min(refobjid::regclass::text)
    FROM pg_attribute
    JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    JOIN pg_depend ON pg_depend.classid = 'pg_attrdef'::regclass AND objid = pg_attrdef.oid
    JOIN pg_sequence ON seqrelid = refobjid AND refclassid = 'pg_class'::regclass
    WHERE attrelid = to_regclass('jobs') AND attname = 'id'
  )
)
