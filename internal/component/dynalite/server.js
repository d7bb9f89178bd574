// Starts dynalite on a free port of the loopback address and says which.
const server = require('./node_modules/dynalite')({ createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 })
server.listen(0, '127.0.0.1', () => console.log('component ready at 127.0.0.1:' + server.address().port))
