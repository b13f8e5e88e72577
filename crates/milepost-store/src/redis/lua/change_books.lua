-- One change of the books, all of it or nothing.
if is_lost() then return { 'lost' } end
local clash = kept_entry(FIRST)
if clash then return clash end
write_books(FIRST)
sweep_books()
return { 'ok' }
