import org.eclipse.jetty.server.Connector;
import org.eclipse.jetty.server.NetworkConnector;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.dynamodb.services.local.main.ServerRunner;
import software.amazon.dynamodb.services.local.server.DynamoDBProxyServer;

/**
 * Starts DynamoDB Local on a free port of the loopback address and says which. Its own main class listens on every address and
 * can't be told otherwise.
 */
public class Loopback {
    public static void main(String[] args) throws Exception {
        var proxy = ServerRunner.createServerFromCommandLineArgs(
            new String[] {"-inMemory", "-sharedDb", "-disableTelemetry", "-port", "8000"});
        var field = DynamoDBProxyServer.class.getDeclaredField("server");
        field.setAccessible(true);
        var server = (Server) field.get(proxy);
        for (Connector c : server.getConnectors()) {
            ((ServerConnector) c).setHost("127.0.0.1");
            ((ServerConnector) c).setPort(0);
        }
        proxy.start();
        System.out.println("component ready at 127.0.0.1:" + ((NetworkConnector) server.getConnectors()[0]).getLocalPort());
        proxy.join();
    }
}
